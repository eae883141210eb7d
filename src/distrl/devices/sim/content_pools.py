"""Pools of names and texts that apps and tasks draw from: people, messages, plans, places, apps, songs, files, pictures.

The last fifth of every pool is kept for test tasks (see `Seeder.sample`), so the order of entries matters and each has
at least twenty. Entries are plain words without punctuation at their ends: a task may ask for them to be typed.
"""

from __future__ import annotations

from random import Random

PEOPLE = (
    "Anna Berg", "Anna Lind", "Omar Haddad", "Julia Novak", "Peter Novak", "Mei Tanaka", "Carlos Ortega", "Lucia Ortega",
    "Ivan Petrov", "Grace Okoye", "Samuel Okoye", "Hannah Weiss", "Tom Fletcher", "Nora Fletcher", "Ravi Menon", "Priya Menon",
    "Elena Rossi", "Marco Rossi", "Sofia Duarte", "Paulo Duarte", "Emma Clarke", "Henry Clarke", "Yusuf Demir", "Leyla Demir",
    "Astrid Holm", "Jonas Holm", "Chloe Martin", "Luc Martin", "Amir Rahimi", "Sara Rahimi", "Victor Hale", "Victor Stone",
    "Maya Stone", "Oscar Reyes", "Ines Reyes", "Daniel Kim", "Hana Kim", "Felix Brandt", "Clara Brandt", "Noah Whitman",
    "Ruth Whitman", "Kofi Mensah", "Ama Mensah", "Liam Doyle", "Aoife Doyle", "Olga Sidorova", "Boris Sidorov", "Wei Zhang",
    "Lin Zhang", "Greta Olsen", "Nils Olsen", "Zara Malik", "Bilal Malik", "Quentin Moreau", "Adele Moreau", "Tariq Aziz",
    "Freya Lund", "Anton Lund", "Bianca Serra", "Diego Serra", "Kenji Mori", "Yuki Mori", "Rosa Vidal", "Hugo Vidal",
)  # fmt: skip
COMPANIES = (
    "Brightwater", "Copperfield Ltd", "Elm and Sons", "Northgate Bank", "Orchard Foods", "Pinecrest Clinic", "Riverside School",
    "Silverline", "Tallship Press", "Umbra Studio", "Westmere Law", "Amberlight", "Bluebell Travel", "Castle Motors",
    "Driftwood Cafe", "Everdale Farm", "Foxglove Design", "Granite Works", "Hillside Vets", "Ironbridge",
    "Juniper Labs", "Kestrel Air", "Lakeview Hotel", "Mossgate", "Quarry Books",
)  # fmt: skip
TEXTS = (
    "running ten minutes late", "see you at the station", "the keys are under the mat", "dinner is at eight", "I found your umbrella",
    "the parcel has arrived", "please call me back", "the meeting was moved", "thanks for the flowers", "I am on the train",
    "can we swap shifts", "bring the blue folder", "the plumber comes tomorrow", "we won the match", "lunch was lovely",
    "I need a lift home", "the cat is fine", "happy birthday", "the car is ready", "my phone was off",
    "tickets are sold out", "the film starts at nine", "I left my jacket", "good luck with the exam", "the heating is fixed",
    "we are at the lake", "save me a seat", "the shop closes early", "I booked the table", "the baby is asleep",
    "pick up some bread", "the lift is broken", "call the dentist", "the snow is deep", "I sent the papers",
    "rehearsal is off today", "the boat leaves at noon", "grandma says hello", "the wifi is down again", "meet me by the fountain",
)  # fmt: skip
SUBJECTS = (
    "Garden plan", "Invoice for March", "Team outing", "Holiday photos", "New office hours", "Roof repair", "Choir practice",
    "Budget draft", "Flight change", "Parking permit", "Book club choice", "School trip", "Library notice", "Gym membership",
    "Rent increase", "Wedding list", "Broken printer", "Recipe swap", "Tax papers", "Survey results", "Summer camp",
    "Dog sitting", "Meeting notes", "Warranty claim", "Piano lessons", "Car inspection", "Museum night", "Water bill",
    "Street party", "Job interview", "Lost scarf", "Train tickets", "Camping gear", "Project timeline", "Allergy test",
    "Neighbour meeting", "Spring sale", "Contract renewal", "Bike repair", "Theatre seats", "Moving boxes", "Staff lunch",
    "Concert tickets", "Kitchen tiles", "Language course", "Harvest fair", "Chess evening", "Visa forms", "Winter tyres", "Science fair",
)  # fmt: skip
SENTENCES = (
    "Please have a look at this soon.", "Here is what we talked about.", "Could you confirm by Friday?", "All the details are below.",
    "Sorry for the late reply.", "I hope this helps you.", "Let me know what you think.", "This is only a first version.",
)  # fmt: skip
EVENTS = (
    "Dentist", "Team lunch", "Yoga class", "Parent evening", "Haircut", "Car service", "Piano lesson", "Board meeting",
    "Eye test", "Football training", "Book club", "Choir rehearsal", "Vet visit", "Flat viewing", "Job interview",
    "Birthday party", "Bank appointment", "Swimming lesson", "Garden work", "Cinema night", "Physiotherapy", "Budget review",
    "School concert", "Blood donation", "Coffee with Ruth", "Tax advice", "Pottery course", "Train to Lyon", "Video call", "Market visit",
    "Tyre change", "Chess evening", "Passport office", "Wine tasting", "Climbing hall", "Dance class", "Boiler check", "Museum tour",
    "Language exam", "Kite festival",
)  # fmt: skip
PLACES = (
    "Room 12", "Main hall", "Harbour cafe", "Old mill", "City library", "Station square", "Park pavilion", "Tower office",
    "Corner studio", "River house", "North gym", "Rose garden", "Market street", "Lab 4", "Town theatre", "Bridge inn",
    "Upper deck", "West gate", "Studio 7", "Green room", "Sports hall", "Castle yard", "Pier 3", "Blue lounge", "Hill school",
)  # fmt: skip
NOTES = (
    "Gift ideas", "Wifi details", "Bread recipe", "Book list", "Trip plan", "House rules", "Car data", "Film list",
    "Garden jobs", "Meal plan", "Shoe sizes", "Locker number", "Travel tips", "Paint colours", "Plant care", "Dream log",
    "Song lyrics", "Gym routine", "Moving plan", "Wine notes", "Baby names", "Speech draft", "Sewing sizes", "Game scores",
    "Tea brands", "Bike routes", "Bird sightings", "Museum hours", "Rental terms", "Knitting pattern", "Tent manual", "Soup ideas",
    "Chess openings", "Lamp parts", "Quiz answers", "Ski wax", "Jam labels", "Family tree", "Train times", "Hotel codes",
)  # fmt: skip
FACTS = (
    "the spare key hangs in the shed", "ask for the window seat", "two cups of rye flour", "water them every other day",
    "the code is on the fridge", "size forty one fits best", "start with the small box", "call before ten in the morning",
    "the red one was better", "leave the car at the depot", "never on a Monday", "mix salt and honey",
    "third drawer from the top", "take the coast road north", "pay the rest in cash", "the blue door on the left",
    "keep it below five degrees", "chapter nine is the best", "the guide speaks Spanish", "bring a warm blanket",
    "turn the valve twice", "the last bus goes at eleven", "she prefers white tulips", "fold along the dotted line",
    "the museum is free on Sundays", "soak overnight in cold water", "paint the ceiling first", "knock three times",
    "the ferry needs exact change", "use the narrow brush",
)  # fmt: skip
LISTS = (
    "Shopping list",
    "Packing list",
    "Weekend chores",
    "Party supplies",
    "Office errands",
    "Repair list",
    "Camping list",
    "School supplies",
)
ITEMS = (
    "Milk", "Rye bread", "Apples", "Candles", "Batteries", "Sun cream", "Olive oil", "Stamps", "Light bulbs", "Toothpaste",
    "Paper plates", "Printer ink", "Dog food", "Rope", "Socks", "Coffee beans", "Tea towels", "Wood glue", "Balloons", "Envelopes",
    "Rain coat", "Onions", "Matches", "Soap", "Notebooks", "Lemons", "Nails", "Honey", "Torch", "Sponges",
    "Yoghurt", "Chalk", "Pillows", "Ginger", "Tape", "Walnuts", "Ribbon", "Mustard", "Gloves", "Crayons",
)  # fmt: skip
ALARMS = (
    "Gym", "School run", "Medicine", "Early shift", "Walk the dog", "Standup", "Laundry", "Call home", "Water plants", "Bake bread",
    "Feed the cat", "Night shift", "Stretch", "Bin day", "Study", "Nap", "Train", "Lunch break", "Radio show", "Market",
    "Tea time", "Meditation", "Swim", "Prayer", "Sunrise walk",
)  # fmt: skip
CITY_HOURS = {
    "London": 0, "Paris": 1, "Cairo": 2, "Nairobi": 3, "Dubai": 4, "Karachi": 5, "Dhaka": 6, "Bangkok": 7, "Singapore": 8, "Tokyo": 9,
    "Sydney": 10, "Auckland": 12, "Honolulu": -10, "Anchorage": -9, "Seattle": -8, "Denver": -7, "Chicago": -6, "New York": -5, "Halifax": -4, "Lima": -5,
    "Berlin": 1, "Athens": 2, "Moscow": 3, "Baku": 4, "Manila": 8, "Seoul": 9, "Lagos": 1, "Rio de Janeiro": -3, "Bogota": -5, "Reykjavik": 0,
    "Helsinki": 2, "Muscat": 4, "Almaty": 5, "Hanoi": 7, "Perth": 8, "Brisbane": 10, "Suva": 12, "Havana": -5, "Santiago": -4, "Praia": -1,
}  # fmt: skip
"""Cities and how many hours their clocks are ahead of London's."""


def phone_number(random: Random) -> str:
    """A number in three groups, as people say it."""
    return f"{random.randint(200, 989)} {random.randint(100, 999)} {random.randint(1000, 9999)}"


def email_of(name: str) -> str:
    """A person's address."""
    return f"{name.lower().replace(' ', '.')}@post.example"


def _pool(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def between(random: Random, low: int, high: int) -> int:
    """A whole number from `low` to `high`, three times as fast as `randint`: every new task makes a phone of them."""
    return low + int(random.random() * (high - low + 1))


# --- maps -----------------------------------------------------------------------------------------------------------

STEMS = _pool(
    "Amber Fox, Blue Lantern, Copper Kettle, Old Mill, Silver Birch, Green Door, Harbour Light, Seven Oaks, Red Sparrow,"
    "White Swan, Clock Tower, Lucky Clover, Stone Bridge, Golden Hare, Rose Garden, North Star, Little Owl, Market Hall,"
    "Pine Grove, River Bend, Quiet Corner, Iron Horse, Maple Court, Sunny Side, Black Cherry, Castle View, Long Meadow,"
    "Willow Tree, Paper Moon, Grand Avenue, Cedar House, Wild Thyme, Bright Water, Winter Palace, Hidden Valley,"
    "Violet Hill, Marble Arch, Fisher Wharf, Eagle Nest, Juniper Lane"
)
"""What a place is called; its kind follows."""
KINDS = ("Bakery", "Bistro", "Cinema", "Gallery", "Hotel", "Library", "Museum", "Pharmacy", "Pizzeria", "Supermarket")
STREETS = _pool(
    "Mill Lane, High Street, Station Road, Church Row, Park Avenue, Kingsway, Bridge Street, Orchard Close, Elm Drive,"
    "Victoria Road, Canal Walk, Queen Street, Forge Hill, Abbey Road, Garden Terrace, Windmill Lane, Chapel Street,"
    "Beech Road, Harbour Parade, Linden Way, Cross Street, Priory Lane, Quay Side, Weaver Street"
)

# --- app store ------------------------------------------------------------------------------------------------------

APP_NAMES = _pool(
    "Skyward, Pocket Chef, Trailmate, Inkwell, Budget Bee, Mindful Minute, Wordsmith, Star Atlas, Fit Circle, Petpal,"
    "Photo Loom, Lingo Leap, Bike Buddy, Quick Scan, Garden Guru, Chess Master, Cloud Locker, Daily Puzzle, Train Timer,"
    "Sleep Harbour, Recipe Box, Voice Memo Plus, Run Tracker, Paint Studio, Weather Eye, Piano Coach, Bird Finder,"
    "Tide Table, Card Castle, Movie Shelf, Plant Doctor, Metro Map, Habit Tree, Storm Radar, Yoga Nest, Book Nook,"
    "Surf Report, Tax Helper, Robot Rally, Zen Timer"
)
DEVELOPERS = _pool(
    "Bluebird Labs, Northwind Software, Tiny Anvil, Paper Crane Studio, Osprey Apps, Lantern Works, Quokka Digital,"
    "Redwood Code, Granite Soft, Mellow Bytes, Half Moon Games, Brightside, Cobalt Forge, Puffin Press, Saltmarsh,"
    "Orbit Nine, Wren and Sons, Kite Software, Old Oak Media, Fable Factory"
)

# --- music ----------------------------------------------------------------------------------------------------------

SONGS = _pool(
    "Midnight Train, Paper Boats, Golden Hour, Electric Rain, Slow River, Neon Garden, Lost Letters, Summer Ghost,"
    "Broken Compass, Velvet Sky, Dancing Alone, City of Glass, Wild Horses Run, Northern Lights, Empty Chairs,"
    "Cherry Wine, Falling Upward, Silent Radio, Ocean Floor, Burning Maps, Satellite Heart, Winter Sun, Gravel Road,"
    "Mirror Lake, Hollow Drum, Tomorrow Maybe, Blue Umbrella, Kingdom Come, Static Love, Desert Bloom, Second Chance,"
    "Lighthouse, Sugar and Smoke, Marching Home, Fireflies, Open Window, Thunder Road, Porcelain, Runaway Moon,"
    "Last Goodbye, Crystal Tears, Echo Valley, Morning Coffee, Dust and Gold, Silver Lining, Twilight Avenue,"
    "Feather Light, Anchor Down, Marble Statue, Violet Dawn"
)
ARTISTS = _pool(
    "Mara Quinn, The Lanterns, Otto Vale, Juno Park, Harbour Boys, Selma Frost, Night Parade, Theo Marsh, Coral Bay,"
    "Iris Noor, Tin Soldiers, Rosa Lind, Felix Grey, The Paper Kites Club, Ada Storm, Milo West, Glass Animals Trio,"
    "Nina Holt, Wolf and Wren, Leo Sand, Saint Avenue, Vera Bloom, Kite District, Hugo Blanc, Clara Dune"
)
RECORDS = _pool(
    "Small Hours, Distant Shores, Colour Theory, Homeward, Paper Crown, Analogue Dreams, Field Notes, Saltwater,"
    "First Light, Undertow, Postcards, Night Swimming, Roots and Wires, Half Asleep, Long Way Round, Tidal, Warm Static,"
    "Northbound, Afterglow, Quiet Machines, Wilderness, Blue Hour, Old Photographs, Carousel, Featherweight"
)
"""Names of albums."""
PLAYLISTS = _pool(
    "Rainy Evenings, Morning Run, Road Trip, Deep Focus, Dinner Party, Sunday Chill, Gym Power, Late Night Drive,"
    "Beach Day, Study Time, Feel Good, Throwback Hits, Cooking Mix, Sleep Well, Party Starters, Garden Work, Slow Dance,"
    "Train Ride, Coffee Break, Winter Fireside, Office Hours, Spring Cleaning, Campfire, Power Nap, Autumn Walk,"
    "Happy Hour, Workout Boost, Quiet Reading, Karaoke Night, Golden Oldies"
)

# --- files ----------------------------------------------------------------------------------------------------------

FILE_NAMES = _pool(
    "Travel budget, Meeting notes, Rental contract, Tax return, Recipe collection, Floor plan, Insurance policy,"
    "Birthday invitation, Project proposal, Bank statement, Shopping list, Exam results, Boarding pass, Hiking map,"
    "Thesis draft, Salary slip, Guest list, Car manual, Warranty card, Medical report, Wedding speech, Book summary,"
    "Tournament schedule, Garden sketch, Client feedback, Packing list, Energy bill, School timetable, Novel chapter,"
    "Vaccination record, Concert ticket, Phone invoice, Language exercises, Club newsletter, Parking permit,"
    "Training plan, Museum guide, Holiday photos backup, Repair estimate, Cover letter, Reading log, Donation receipt,"
    "Choir music, Kitchen quote, Quarterly figures, Family tree, Visa application, Bike lease, Poster design, Lab journal"
)
FOLDERS = ("Archive", "Documents", "Downloads", "Household", "Personal", "Shared", "Work")
"""Folders that every phone has."""
NEW_FOLDERS = _pool(
    "Invoices, Holiday plans, University, Old letters, Receipts, Client work, Recipes, Side project, House move,"
    "Certificates, Club papers, Manuals, Drafts, Presentations, Tickets, Health, Car papers, Kids school, Research,"
    "Contracts, Scans, Garden ideas, Job search, Band practice, Legal matters"
)

# --- photos ---------------------------------------------------------------------------------------------------------

CAPTIONS = _pool(
    "Sunset at the pier, Birthday cake, First snow, Grandma laughing, Kitten asleep, Team picture, Mountain hut,"
    "Rainbow over town, Breakfast in bed, New bicycle, Beach volleyball, Campfire songs, Old bridge, Wedding dance,"
    "Tulip field, Market stall, Puppy on the sofa, Concert crowd, Foggy forest, Chess final, Lantern parade,"
    "Ice cream stop, Harbour at dawn, Garden party, Train window, School play, Waterfall walk, Pancake stack,"
    "Starry night, Street musician, Red balloon, Castle gate, Picnic blanket, Autumn leaves, Goal celebration,"
    "Lighthouse steps, Family selfie, Desert road, Book fair, Fireworks finale"
)
TOWNS = _pool(
    "Lisbon, Bergen, Kyoto, Valencia, Bath, Ghent, Porto, Zurich, Galway, Riga, Bologna, Oslo, Utrecht, Malaga, Lucerne,"
    "Bruges, Turin, Aarhus, York, Salzburg, Tallinn, Nantes, Split, Toledo"
)
ALBUMS = ("Camera", "Family", "Friends", "Nature", "Trips")
"""Albums that every phone has."""
NEW_ALBUMS = _pool(
    "Summer holiday, Best moments, Our garden, City breaks, Baby pictures, Food diary, Road trip, Winter sports, Concerts,"
    "Wedding day, Pets, Old friends, Street art, Graduation, Sailing tour, Birthday party, Wild flowers, Night skies,"
    "Football season, House building, Market days, Museum visits, Mountain hikes, Sunrise collection, School days"
)
SCREENS_NEARBY = ("Kitchen tablet", "Living room TV", "Bedroom TV", "Office printer", "Old laptop", "Picture frame")
"""Where a picture can be sent."""
